#pragma once
// JSON for people and scripts to read; code of this room finds its names without a namespace.

#include "support/json_text.h"
