"""The links between nodes: who meets whom, what each pair and ring showed, and which node or pair is slow."""
