/* 10^5 read() calls of 4 KiB from a file in the page cache. */
#include <fcntl.h>
#include <unistd.h>

int main(void)
{
    char buffer[4096];
    int fd = open("/proc/self/exe", O_RDONLY);
    unsigned sum = 0;
    if (fd < 0)
        return 1;
    for (int i = 0; i < 100000; i++) {
        if (i % 3 == 0)
            lseek(fd, 0, SEEK_SET);
        if (read(fd, buffer, sizeof buffer) < 0)
            return 1;
        sum += buffer[i % sizeof buffer];
    }
    return sum == 42;
}
