"""From a summary to scores, ratios, scaling, slow devices and costs. Pure."""
