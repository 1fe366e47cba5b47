"""Single domains and single mechanisms at random: orderings, codecs, acknowledgements, stability."""
