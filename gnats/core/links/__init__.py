<<<<<<< HEAD
"""Links to other servers: what all share, and the session of a route."""
=======
"""Links to other servers."""
>>>>>>> 2d86103ec22370e8dcf67d735284e769cf276f4b
