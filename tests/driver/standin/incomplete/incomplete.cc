// A vendor library that lacks nearly everything: what a user with a much too old driver has.
extern "C" int hipInit(unsigned) {
  return 0;
}
