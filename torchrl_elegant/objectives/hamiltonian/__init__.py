"""The Hamiltonian term."""
