/* An image is blurred with a kernel of 5 x 5; the main thread decodes it, AFTER: each thread decodes its rows. */
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 512, HEIGHT = 256, ROUNDS = 2 };

int main(void)
{
    float(*image)[WIDTH] = malloc(sizeof *image * HEIGHT), (*out)[WIDTH] = malloc(sizeof *out * HEIGHT);
    static const float kernel[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (long row = 0; row < HEIGHT; row++)
        for (long column = 0; column < WIDTH; column++) {
            image[row][column] = (row * 13 + column * 7) % 256;
            out[row][column] = 0;
        }
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel for schedule(static)
        for (long row = 2; row < HEIGHT - 2; row++)
            for (long column = 2; column < WIDTH - 2; column++) {
                float sum = 0;
                for (int i = 0; i < 5; i++)
                    for (int j = 0; j < 5; j++)
                        sum += kernel[i] * kernel[j] * image[row + i - 2][column + j - 2];
                out[row][column] = sum;
            }
        float(*other)[WIDTH] = image;
        image = out, out = other;
    }
    printf("%g\n", image[9][9]);
    return 0;
}
