"""From a summary to scores, ratios, scaling, slow devices and money. Pure."""
