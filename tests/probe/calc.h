/* A small calculator with bc's way of working: a program is translated into bytecode, the bytecode is executed. */
#ifndef CALC_H
#define CALC_H

typedef struct number {
    int digits;
    long value;
} number;

typedef struct stack_rec {
    number *s_num;
    struct stack_rec *s_next;
} stack_rec;

enum { PUSH = 'K', LOAD = 'l', STORE = 's', ADD = '+', LESS = '<', PRINT = 'P', BRANCH = 'B', JUMP = 'J', HALT = 'h' };

typedef struct code {
    char op;
    long operand;
} code;

#define MOST_CODE 200
#define TOP (ex_stack->s_num)

extern code program[MOST_CODE];
extern stack_rec *ex_stack;

void out_num(number *num, void (*out_char)(int));
int translate(const char *line);
void execute(void);

#endif
