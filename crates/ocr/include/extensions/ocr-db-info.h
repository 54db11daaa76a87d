/* Everything is in ocr.h; this name is for programs that ask for the extension by file. */
#include "../ocr.h"
