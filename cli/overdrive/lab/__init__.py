"""`overdrive lab`: a virtual cluster on one machine, made of namespaces."""
