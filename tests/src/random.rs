//! A seed goes in, the source of a random program comes out: arithmetic with flags live and dead, branches, loops, calls and
//! faults, while a timer's signals arrive at any of its instructions, in handlers of all kinds.
//!
//! What it prints depends on when signals came and on everything that a handler could see; no two runs are the same, but
//! a recording and its replay are.

use std::fmt::Write;

/// Functions of a program.
const FUNCTIONS: usize = 12;

/// A generator of our own: seeds mean the same program everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// The program's source, in C.
pub fn program(seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text = String::from("__asm__(\".text\\n\"\n");
    for number in 0..FUNCTIONS {
        let mut function = Function {
            random: &mut random,
            lines: Vec::new(),
            number,
            labels: 0,
        };
        function.body();
        let _ = writeln!(text, "\".p2align 4\\n.globl f{number}\\nf{number}:\\n\"");
        for line in function.lines {
            let _ = writeln!(text, "\"{line}\\n\"");
        }
    }
    text.push_str("\"functions_end:\\n\"\n);\nextern char functions_end[];\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(text, "void f{number}(void);");
    }
    let names: Vec<String> = (0..FUNCTIONS).map(|number| format!("f{number}")).collect();
    let _ = writeln!(
        text,
        "static void (*const functions[])(void) = {{{}}};",
        names.join(", ")
    );
    text.push_str(HARNESS);
    text
}

struct Function<'a> {
    random: &'a mut Random,
    lines: Vec<String>,
    number: usize,
    labels: usize,
}

impl Function<'_> {
    fn body(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            self.piece(0);
        }
        self.lines.push("ret".into());
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!(".Lf{}_{}", self.number, self.labels)
    }

    /// Straight code, a jump over some, a loop, or a call of a function with a lower number.
    fn piece(&mut self, depth: usize) {
        match self.random.below(8) {
            0 | 1 if depth < 2 => self.repeated(depth),
            2 | 3 if depth < 4 => {
                let over = self.label();
                let condition = self.random.of(CONDITIONS);
                self.straight();
                self.lines.push(format!("j{condition} {over}"));
                self.piece(depth + 1);
                self.lines.push(format!("{over}:"));
            }
            4 if self.number > 0 => {
                let callee = self.random.below(self.number);
                match self.random.below(3) {
                    0 => {
                        self.lines.push(format!("lea f{callee}(%rip), %rax"));
                        self.lines.push("call *%rax".into());
                    }
                    _ => self.lines.push(format!("call f{callee}")),
                }
            }
            // A fault, whose handler goes on behind it.
            5 if self.random.below(3) == 0 => self.lines.push("ud2".into()),
            _ => self.straight(),
        }
    }

    /// A loop with a counter of its own, closed in one of the ways that compilers close them.
    fn repeated(&mut self, depth: usize) {
        let counter = ["r12", "r13"][depth];
        let times = 1 + self.random.below(20);
        let top = self.label();
        self.lines.push(format!("push %{counter}"));
        let close: &[&str] = match self.random.below(4) {
            0 => &["dec %C", "jnz T"],
            1 => &["sub $1, %C", "ja T"],
            2 => &["lea -1(%C), %C", "test %C, %C", "jne T"],
            _ => &["add $-1, %C", "cmp $0, %C", "jg T"],
        };
        self.lines.push(format!("mov ${times}, %{counter}"));
        self.lines.push(format!("{top}:"));
        for _ in 0..1 + self.random.below(2) {
            self.piece(depth + 1);
        }
        let close = close.iter().map(|line| line.replace('C', counter));
        self.lines.extend(close.map(|line| line.replace('T', &top)));
        self.lines.push(format!("pop %{counter}"));
    }

    fn straight(&mut self) {
        for _ in 0..1 + self.random.below(6) {
            let line = self.random.of(INSTRUCTIONS);
            let line = line.replace("%A", self.random.of(REGISTERS));
            let line = line.replace("%B", self.random.of(REGISTERS));
            let line = line.replace("CC", self.random.of(CONDITIONS));
            let number = self.random.below(64).to_string();
            self.lines.push(line.replace("#", &number));
        }
    }
}

const REGISTERS: &[&str] = &[
    "%rax", "%rbx", "%rcx", "%rdx", "%rsi", "%rdi", "%r8", "%r9", "%r10", "%r11",
];

const CONDITIONS: &[&str] = &[
    "o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g",
];

const INSTRUCTIONS: &[&str] = &[
    "add %A, %B",
    "sub %A, %B",
    "cmp %A, %B",
    "test %A, %B",
    "and %A, %B",
    "or %A, %B",
    "xor %A, %B",
    "adc %A, %B",
    "sbb %A, %B",
    "inc %A",
    "dec %A",
    "neg %A",
    "not %A",
    "imul %A, %B",
    "imul $#, %A, %B",
    "mul %A",
    "shl $#, %A",
    "shr $1, %A",
    "sar %cl, %A",
    "rol $#, %A",
    "rcr $1, %A",
    "shld $#, %A, %B",
    "bsf %A, %B",
    "bsr %A, %B",
    "bt $#, %A",
    "btc %A, %B",
    "popcnt %A, %B",
    "mov %A, %B",
    "mov $#, %A",
    "lea #(%A, %B), %B",
    "xchg %A, %B",
    "cmovCC %A, %B",
    "setCC %al",
    "pushf; pop %A",
    "push %A; pop %B",
    "lahf",
    "sahf",
    "stc",
    "cmc",
    "xadd %A, %B",
    "lock addq $#, shared(%rip)",
    "mov shared(%rip), %A",
    "add %A, shared+8(%rip)",
    "movq %A, %xmm3",
    "paddq %xmm3, %xmm4",
    "movq %xmm4, %A",
    "cvtsi2sd %A, %xmm5",
    "ucomisd %xmm3, %xmm5",
    "fld1; fadds single(%rip); fstps single(%rip)",
    "cld; lea area(%rip), %rdi; mov $#, %ecx; rep stosb",
    "rdtsc",
    "nop",
];

/// Calls the functions until enough signals have come, and hashes what they and the handlers saw.
const HARNESS: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

uint64_t shared[4];
float single = 1;
char area[64];
volatile uint64_t hits, hash;
static __thread sigjmp_buf back;
static __thread volatile int armed;

void call_with(void (*function)(void), uint64_t start, uint64_t *result);
__asm__(".text\ncall_with:\n"
        "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; push %rdx; mov %rdi, %rbp\n"
        "mov %rsi, %rax; mov %rsi, %rbx; lea 3(%rsi), %rcx; not %rcx; mov $7, %edx; mov %rsi, %rdi; bswap %rdi\n"
        "mov $1, %r8d; mov %rsi, %r9; shr $7, %r9; mov $-1, %r10; xor %r11d, %r11d; pxor %xmm3, %xmm3\n"
        "pxor %xmm4, %xmm4; pxor %xmm5, %xmm5\n"
        "call *%rbp\n"
        "add %rbx, %rax; add %rcx, %rax; add %rdx, %rax; xor %rsi, %rax; xor %rdi, %rax; xor %r8, %rax\n"
        "xor %r9, %rax; xor %r10, %rax; xor %r11, %rax; pop %rdx; mov %rax, (%rdx); cld\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n");

// Handlers that write no flags, or some, or look at them.
#define RAW(name, code) void name(int); __asm__(".text\n" #name ":\n" code "\nret\n");
RAW(nothing, "")
RAW(store, "mov hits(%rip), %rax; lea 1(%rax), %rax; mov %rax, hits(%rip)")
RAW(count, "incq hits(%rip)")
RAW(push_flags, "pushf; pop %rax; add %rax, hash(%rip); incq hits(%rip)")
RAW(call, "mov $39, %eax; syscall; add %r11, hash(%rip); incq hits(%rip)")
RAW(carry, "lea 1(%rdi), %rax; setc %al; movzbl %al, %eax; add %rax, hash(%rip); incq hits(%rip)")
RAW(vectors, "movups %xmm3, -24(%rsp); mov -24(%rsp), %rax; add %rax, hash(%rip); mov %rax, %rcx; movq %rcx, %xmm4; incq hits(%rip)")

static uint64_t mix(uint64_t sum, const void *from, size_t size) {
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)from + i, 8);
        sum = (sum ^ word) * 0xff51afd7ed558ccd;
        sum ^= sum >> 29;
    }
    return sum;
}
static void context(int sig, siginfo_t *info, void *at) {
    ucontext_t *uc = at;
    hash = mix(hash, uc->uc_mcontext.gregs, sizeof uc->uc_mcontext.gregs);
    hash = mix(hash, uc->uc_mcontext.fpregs, 512);
    hits++;
}
static void edit(int sig, siginfo_t *info, void *at) {
    ucontext_t *uc = at;
    hits++;
    // Only the generated code can do with other flags.
    uintptr_t pc = uc->uc_mcontext.gregs[REG_RIP];
    if (pc < (uintptr_t)functions[0] || pc >= (uintptr_t)functions_end) return;
    uc->uc_mcontext.gregs[REG_EFL] ^= 0x8d5;
    uc->uc_mcontext.gregs[REG_R11] += 1;
}
static void jump(int sig, siginfo_t *info, void *at) {
    hits++;
    if (armed) siglongjmp(back, 1);
}
static void fault(int sig, siginfo_t *info, void *at) {
    ucontext_t *uc = at;
    hash = mix(hash, uc->uc_mcontext.gregs, sizeof uc->uc_mcontext.gregs);
    uc->uc_mcontext.gregs[REG_RIP] += 2;
}
static void *const handlers[] = {nothing, store, count, push_flags, call, carry, vectors, context, edit, jump};

static void choose(unsigned n) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};
    action.sa_sigaction = handlers[n % (sizeof handlers / sizeof *handlers)];
    sigaction(SIGALRM, &action, 0);
}
static uint64_t end;
static uint64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
static void *work(void *arg) {
    uint64_t sum = (uintptr_t)arg, rounds = (uintptr_t)arg;
    // Some programs do a thousand times the work of others.
    for (unsigned n = 0; n < rounds && milliseconds() < end; n++) {
        if (n % 64 == 0) choose(n / 64 + rounds);
        uint64_t got = 0;
        if (!sigsetjmp(back, 1)) {
            armed = 1;
            call_with(functions[n % (sizeof functions / sizeof *functions)], sum, &got);
        }
        armed = 0;
        sum = mix(sum, &got, 8);
    }
    hash ^= sum;
    return 0;
}
int main(int argc, char **argv) {
    int threads = atoi(argv[1]), rounds = atoi(argv[2]), every = atoi(argv[3]);
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, 0);
    choose(rounds);
    struct itimerval timer = {{0, every}, {0, every}};
    setitimer(ITIMER_REAL, &timer, 0);
    end = milliseconds() + 150;
    pthread_t others[4];
    for (int i = 1; i < threads; i++) pthread_create(&others[i], 0, work, (void *)(uintptr_t)(rounds + i));
    work((void *)(uintptr_t)rounds);
    for (int i = 1; i < threads; i++) pthread_join(others[i], 0);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, 0);
    printf("%016lx %lu %016lx\n", (unsigned long)hash, (unsigned long)hits, (unsigned long)mix(0, shared, sizeof shared));
    return 0;
}
"#;
