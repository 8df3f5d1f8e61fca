"""Alike states in which unlike actions were taken or unlike results came."""
