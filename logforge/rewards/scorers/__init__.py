"""Terms that read texts: overlap, similarity, judges, test results, facts."""
