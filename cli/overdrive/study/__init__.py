"""`overdrive study`: measurements and simulations that show why Overdrive chooses as it does."""
