"""`corral import universe`: the folder of a Universe node, read, mapped and imported."""
