/* The execution phase: a stack machine, and the printer of numbers. */
#include "calc.h"
#include <stdlib.h>

stack_rec *ex_stack;
static long variable;

static void push(long value)
{
    stack_rec *rec = malloc(sizeof *rec);
    rec->s_num = malloc(sizeof *rec->s_num);
    rec->s_num->value = value;
    rec->s_num->digits = value < 10 ? 1 : value < 100 ? 2 : 3;
    rec->s_next = ex_stack;
    ex_stack = rec;
}

static long pop(void)
{
    stack_rec *rec = ex_stack;
    long value = TOP->value;
    ex_stack = rec->s_next;
    free(rec->s_num);
    free(rec);
    return value;
}

/* Prints a number by way of a buffer that stays, as bc does. */
void out_num(number *num, void (*out_char)(int))
{
    static char buffer[32];
    long value = num->value;
    int n = 0;
    do
        buffer[n++] = '0' + value % 10;
    while (value /= 10);
    while (n)
        out_char(buffer[--n]);
}

extern void put(int c);

void execute(void)
{
    int pc = 0;
    number shown = {1, 0};
    for (;;) {
        char inst = program[pc].op;
        long operand = program[pc].operand;
        long a;
        pc++;
        switch (inst) {
        case PUSH:
            push(operand);
            break;
        case LOAD:
            push(variable);
            break;
        case STORE:
            variable = pop();
            break;
        case ADD:
            a = pop();
            push(pop() + a);
            break;
        case LESS:
            a = pop();
            push(pop() < a);
            break;
        case PRINT:
            shown.value = pop();
            out_num(&shown, put);
            put('\n');
            break;
        case BRANCH:
            if (!pop())
                pc = operand;
            break;
        case JUMP:
            pc = operand;
            break;
        case HALT:
            return;
        }
    }
}
