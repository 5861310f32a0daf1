// A vendor library that lacks nearly all functions, like a driver that is much too old.
extern "C" int hipInit(unsigned) {
  return 0;
}
