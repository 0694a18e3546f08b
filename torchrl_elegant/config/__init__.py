"""Configurations as dataclasses: options with bounds and help, their text form, groups of them."""
