"""What Python users and the command line call: train, resume, evaluate, compare. Rooms below do the work."""
