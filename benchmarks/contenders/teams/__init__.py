"""Teams of VMAS: what is trained, and how each library trains it."""
