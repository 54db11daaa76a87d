#include "rank_file.h"
