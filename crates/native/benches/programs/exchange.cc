// Threads that exchange rows and columns: a five-point stencil, a transposition in tiles, and a product of matrices.
#include <cstdio>
#include <utility>
#include <vector>

static const int side = 512, turns = 120, size = 320;

static void relax(const std::vector<double> &from, std::vector<double> &to) {
#pragma omp parallel for schedule(static)
    for (int i = 1; i < side - 1; i++)
        for (int j = 1; j < side - 1; j++) {
            const double *at = &from[i * side + j];
            to[i * side + j] = 0.2 * (at[0] + at[-1] + at[1] + at[-side] + at[side]);
        }
}

static void transpose(const std::vector<double> &from, std::vector<double> &to) {
    const int tile = 16;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < side; i += tile)
        for (int j = 0; j < side; j += tile)
            for (int k = i; k < i + tile; k++)
                for (int l = j; l < j + tile; l++)
                    to[k * side + l] = from[l * side + k];
}

static void multiply(const std::vector<double> &a, const std::vector<double> &b, std::vector<double> &c) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            double sum = 0;
            for (int k = 0; k < size; k++)
                sum += a[i * size + k] * b[k * size + j];
            c[i * size + j] = sum;
        }
}

int main() {
    std::vector<double> a(side * side), b(side * side);
    for (int i = 0; i < side * side; i++)
        a[i] = b[i] = i % 97;
    for (int turn = 0; turn < 16 * turns; turn++) {
        relax(a, b);
        if (turn % 8 == 0)
            transpose(b, a);
        else
            std::swap(a, b);
    }
    std::vector<double> c(size * size), d(size * size);
    for (int turn = 0; turn < turns / 4; turn++) {
        multiply(a, b, c);
        std::swap(c, d);
    }
    double sum = 0;
    for (double value : d)
        sum += value;
    std::printf("%.8e %.8e\n", a[side * 3 + 5], sum);
}
