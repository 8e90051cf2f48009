#include <stdio.h>

#include "moments.h"

#define MOST 1000

int main(void)
{
    static double values[MOST];
    size_t count = 0;
    while (count < MOST && scanf("%lf", &values[count]) == 1)
        count++;
    printf("mean %.*f, deviation %.*f\n", DIGITS, mean(values, count), DIGITS, deviation(values, count));
    return count == 0;
}
