"""How often the judgement is right, counted on simulated worlds whose truth is known."""
