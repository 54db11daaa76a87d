/* Everything is in ocr.h; this name is for programs that ask for a part by file. */
#include "ocr.h"
