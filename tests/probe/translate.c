/* The translation phase: `for (i=0;i<3;i+1) i` and the like become bytecode. An empty condition leaves nothing on the
 * stack for the branch: the mistake of bc 1.06. */
#include "calc.h"

code program[MOST_CODE];
static int used;

static void emit(char op, long operand)
{
    program[used].op = op;
    program[used].operand = operand;
    used++;
}

/* A number, i, a sum or a comparison of two of those. Returns where it ends. */
static const char *expression(const char *at, char end)
{
    char op = 0;
    while (*at && *at != end) {
        if (*at >= '0' && *at <= '9') {
            long value = 0;
            while (*at >= '0' && *at <= '9')
                value = value * 10 + *at++ - '0';
            emit(PUSH, value);
        } else {
            if (*at == 'i')
                emit(LOAD, 0);
            at++;
            if (at[-1] == '+' || at[-1] == '<') {
                op = at[-1];
                continue;
            }
        }
        if (op) {
            emit(op, 0);
            op = 0;
        }
    }
    return *at ? at + 1 : at;
}

int translate(const char *line)
{
    const char *at = line + 5;
    at = expression(at + 2, ';');
    emit(STORE, 0);
    int condition = used;
    at = expression(at, ';');
    emit(BRANCH, 0);
    int branch = used - 1;
    const char *step = at;
    while (*at && *at != ')')
        at++;
    expression(at + 1, 0);
    emit(PRINT, 0);
    expression(step, ')');
    emit(STORE, 0);
    emit(JUMP, condition);
    program[branch].operand = used;
    emit(HALT, 0);
    return used;
}
