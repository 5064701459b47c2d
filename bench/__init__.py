"""The experiment: what exists, what is timed, how, what it means and what a person sees."""
