"""Many runs compared, and one run diagnosed."""
