"""Finds out by trying which parts of the fence this node offers."""
