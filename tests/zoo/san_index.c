// UndefinedBehaviorSanitizer sees an index that is too large, and the program goes on.
// kind: sanitizer
// flags: -fsanitize=undefined
#include <stdio.h>
static int months[12];
static int month_of(int day) {
    return day / 30; // CAUSE
}
int main(void) {
    for (int day = 0; day < 400; day += 130) {
        int month = month_of(day);
        months[month]++;
    }
    printf("%d\n", months[0]);
    return 0;
}
