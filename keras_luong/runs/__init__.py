"""What a training leaves on disk, and what it takes to go on with it."""
