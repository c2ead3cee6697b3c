"""The printed statements and tables, and the formats that lay them out."""
