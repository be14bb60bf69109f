"""How fast the product is at what users do with it, against what they would write instead: `make bench`."""
