"""How many servers, cores and how much memory a number of jobs needs: measured costs, and what follows from them."""
