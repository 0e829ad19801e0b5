"""The versions, oldest first; one that was released is never changed."""
