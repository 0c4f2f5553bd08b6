"""Find out what is wrong with a trial: run it in a terminal, try one batch, pack a report."""
