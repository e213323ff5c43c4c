// Large blocks go back to the kernel: the first touch faults.
// held: out
// kind: use-after-free
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct image { int width, height; unsigned char *pixels; };
static struct image make(int width, int height) {
    struct image image = {width, height, malloc((size_t)width * height)};
    memset(image.pixels, 9, (size_t)width * height);
    return image;
}
static void drop(struct image *image) {
    free(image->pixels); // CAUSE
}
int main(void) {
    struct image image = make(2000, 1000);
    struct image copy = image;
    drop(&image);
    long sum = 0;
    for (int x = 0; x < copy.width; x++) sum += copy.pixels[x];
    printf("%ld\n", sum);
    return 0;
}
