"""Updates as compiled functions of plain tensors."""
