"""What a job that was never run would take, with its uncertainty."""
