"""A session, a source or a user leaves the store and all that was made of it."""
