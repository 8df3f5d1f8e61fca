"""What is cleaned and what is marked before anything is stored."""
