"""How good translations and alignments are, in figures and pictures."""
