//! Random programs without data races: a seed goes in, C source comes out. What they print depends on the order in which
//! their threads had their locks.

use std::fmt::Write;

use crate::random::Random;

/// A program with two to five threads that share counters, each behind an object of its own.
pub fn program(seed: u64) -> String {
    let mut random = Random::new(seed);
    let (threads, objects) = (2 + random.below(4), 1 + random.below(4));
    let mut out = String::from(HEAD);
    let _ = writeln!(out, "enum {{ THREADS = {threads}, OBJECTS = {objects} }};");
    out.push_str(OBJECTS);
    for thread in 0..threads {
        let rounds = 20 + random.below(120);
        let _ = writeln!(
            out,
            "static void *work{thread}(void *x) {{\n  for (int i = 0; i < {rounds}; i++) {{"
        );
        for _ in 0..1 + random.below(6) {
            let object = random.below(objects);
            let value = random.below(1000);
            let step = match random.below(12) {
                0 | 1 => format!("locked({object}, {value});"),
                2 => format!("tried({object}, {value});"),
                3 => format!("writing({object}, {value});"),
                4 => format!("local += reading({object});"),
                5 => format!("counted({object}, {value});"),
                6 => format!("spinning({object}, {value});"),
                7 => format!("produce({object});"),
                8 => format!("consume({object});"),
                9 => format!("moved({object}, {});", 1 + random.below(3000)),
                10 => "local += now();".to_owned(),
                _ => format!("printf(\"{thread} %d\\n\", i);"),
            };
            let _ = writeln!(out, "    {step}");
        }
        out.push_str("  }\n  locked(0, local);\n  return x;\n}\n");
    }
    let names: Vec<String> = (0..threads).map(|thread| format!("work{thread}")).collect();
    let _ = writeln!(
        out,
        "static void *(*all[])(void *) = {{{}}};",
        names.join(", ")
    );
    out.push_str(MAIN);
    out
}

const HEAD: &str = r#"#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static __thread unsigned local;
"#;

const OBJECTS: &str = r#"
static struct {
  pthread_mutex_t mutex; pthread_rwlock_t rwlock; pthread_spinlock_t spin; pthread_cond_t filled; sem_t sem;
  unsigned hash, written, spun, items, counted; void *memory;
} objects[OBJECTS];
static void locked(int n, unsigned x) {
  pthread_mutex_lock(&objects[n].mutex); objects[n].hash = objects[n].hash * 31 + x; pthread_mutex_unlock(&objects[n].mutex);
}
static void tried(int n, unsigned x) {
  if (pthread_mutex_trylock(&objects[n].mutex)) { local++; return; }
  objects[n].hash = objects[n].hash * 37 + x; pthread_mutex_unlock(&objects[n].mutex);
}
static void writing(int n, unsigned x) {
  pthread_rwlock_wrlock(&objects[n].rwlock); objects[n].written = objects[n].written * 31 + x; pthread_rwlock_unlock(&objects[n].rwlock);
}
static unsigned reading(int n) {
  pthread_rwlock_rdlock(&objects[n].rwlock); unsigned x = objects[n].written; pthread_rwlock_unlock(&objects[n].rwlock); return x;
}
static void counted(int n, unsigned x) {
  sem_wait(&objects[n].sem); objects[n].counted = objects[n].counted * 31 + x; sem_post(&objects[n].sem);
}
static void spinning(int n, unsigned x) {
  pthread_spin_lock(&objects[n].spin); objects[n].spun = objects[n].spun * 31 + x; pthread_spin_unlock(&objects[n].spin);
}
static void produce(int n) {
  pthread_mutex_lock(&objects[n].mutex); objects[n].items++; pthread_cond_signal(&objects[n].filled);
  pthread_mutex_unlock(&objects[n].mutex);
}
static void consume(int n) {
  struct timespec soon; clock_gettime(CLOCK_REALTIME, &soon);
  soon.tv_nsec += 20000; if (soon.tv_nsec >= 1000000000) soon.tv_sec++, soon.tv_nsec -= 1000000000;
  pthread_mutex_lock(&objects[n].mutex);
  while (!objects[n].items && !pthread_cond_timedwait(&objects[n].filled, &objects[n].mutex, &soon)) {}
  if (objects[n].items) objects[n].items--, objects[n].hash = objects[n].hash * 41 + local; else local += 3;
  pthread_mutex_unlock(&objects[n].mutex);
}
static void moved(int n, size_t size) {
  void *mine = malloc(size);
  pthread_mutex_lock(&objects[n].mutex); void *old = objects[n].memory; objects[n].memory = mine;
  objects[n].hash = objects[n].hash * 43 + (unsigned)(uintptr_t)mine; pthread_mutex_unlock(&objects[n].mutex);
  free(old);
}
static unsigned now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_nsec; }
"#;

const MAIN: &str = r#"
int main(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < OBJECTS; i++) {
    pthread_mutex_init(&objects[i].mutex, NULL); pthread_rwlock_init(&objects[i].rwlock, NULL);
    pthread_spin_init(&objects[i].spin, 0); pthread_cond_init(&objects[i].filled, NULL); sem_init(&objects[i].sem, 0, 1);
  }
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, all[i], NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < OBJECTS; i++)
    printf("%u %u %u %u %u\n", objects[i].hash, objects[i].written, objects[i].spun, objects[i].items, objects[i].counted);
  return 0;
}
"#;
