/* A library with variables of its own for each thread. */
__thread int in_library = 5;
static __thread int hidden = 6;

int touch(int to)
{
    in_library = to;
    hidden += to;
    return hidden;
}
