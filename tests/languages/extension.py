# A crash in C, called from Python through ctypes: both stacks are there.
import ctypes

def copy(target, size):
    ctypes.memset(target, 0, size)

def clear(buffers):
    for name, address in buffers:
        copy(address, 16)

room = ctypes.create_string_buffer(16)
clear([('good', ctypes.addressof(room)), ('bad', 8)])
