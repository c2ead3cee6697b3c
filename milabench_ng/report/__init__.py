"""From records to a decision: summary, score, comparison, cost, and the formats they are printed in."""
