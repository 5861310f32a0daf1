// The table of vendor functions is within the list that the design allows, and absent or unusable libraries give clear
// errors.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "runtime/driver/api.h"
#include "runtime/driver/library.h"
#include "tests/support/skip.h"

namespace forge::driver::test {

namespace {

std::string file_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> table(const std::string& library) {
  std::set<std::string> names;
  for (const FunctionRow& row : function_rows()) {
    if (row.library == library) names.insert(row.name);
  }
  return names;
}

/// The HIP functions that forge may use, from hip_functions.txt, one name per line.
std::set<std::string> allowed() {
  const char* folder = std::getenv("FORGE_DRIVER_TESTS");
  std::istringstream in(file_text(std::string(folder != nullptr ? folder : ".") + "/hip_functions.txt"));
  return {std::istream_iterator<std::string>(in), {}};
}

}  // namespace

TEST_CASE("the table holds only HIP functions that the design allows") {
  const std::set<std::string> names = allowed(), used = table("hip");
  REQUIRE(names.size() > 40);
  REQUIRE(used.size() > 30);
  for (const std::string& name : used) {
    INFO(name);
    CHECK(names.contains(name));
  }
  CHECK(table("hiprtc").size() == 9);
  CHECK(function_rows().size() == used.size() + 9 + table("cuda").size() + table("nvrtc").size());
}

TEST_CASE("no function of the table waits for a device, blocks on a copy or reads the environment") {
  const std::regex forbidden(
      "(Device|Ctx)Synchronize|DeviceReset|Memcpy(HtoD|DtoH|DtoD)?(_v2)?$|Memset(D8|D32)?$|Cooperative");
  for (const FunctionRow& row : function_rows()) {
    INFO(row.name);
    CHECK_FALSE(std::regex_search(row.name, forbidden));
  }
  CHECK(std::regex_search("hipDeviceSynchronize", forbidden));
  CHECK(std::regex_search("hipMemcpy", forbidden));
}

TEST_CASE("the list of allowed functions equals the design document's") {
  const auto path = tests::reference_file("DESIGN.md");
  if (path.empty()) return;
  const std::string text = file_text(path);
  const std::size_t start = text.find("HIP functions it may use:");
  REQUIRE(start != std::string::npos);
  const std::string line = text.substr(start, text.find(", and hiprtc's", start) - start);
  std::set<std::string> listed;
  const std::regex name("\\bhip[A-Z]\\w+");
  for (std::sregex_iterator at(line.begin(), line.end(), name), end; at != end; ++at) listed.insert(at->str());
  listed.insert("hipGetDevicePropertiesR0600");  // the document writes "(and R0600)"
  CHECK(listed == allowed());
}

TEST_CASE("library names are tried newest first, the vendor's own folder last") {
  constexpr int kVersions[] = {7, 5};
  const std::vector<std::string> expected{"libx.so.7",      "libx.so.5",      "libx.so",
                                          "/own/libx.so.7", "/own/libx.so.5", "/own/libx.so"};
  CHECK(library_names("libx.so", kVersions, "/own") == expected);
  CHECK(library_names("libx.so", {}) == std::vector<std::string>{"libx.so"});
}

TEST_CASE("a missing library is an error that names the package to install") {
  const std::vector<std::string> names{"libforge-no-such-library.so.1"};
  const Library library = Library::load(names);
  CHECK_FALSE(library);
  CHECK(library.failure().empty());
  CHECK(library.symbol("anything") == nullptr);
  const Error error = not_loaded("libforge-no-such-library.so", library.failure(), "libthat1");
  CHECK(error.code() == ErrorCode::kDevice);
  CHECK(error.line().find("install libthat1") != std::string::npos);
  CHECK(not_loaded("libx.so", "libx.so: wrong ELF class", "libx1").line().find("wrong ELF class") != std::string::npos);
}

TEST_CASE("a search tries each library once, in order") {
  LibrarySearch search({"libforge-no-such-library.so.1", "libm.so.6", "libm.so.6", "libc.so.6"});
  const Library first = search.next(), second = search.next();
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first.path().find("libm.so") != std::string::npos);
  CHECK(second.path().find("libc.so") != std::string::npos);
  CHECK_FALSE(search.next());
  CHECK_FALSE(search.next());
  CHECK(search.failure().empty());
}

TEST_CASE("probing never throws, and reports for every vendor what it found or misses") {
  const std::vector<DriverReport> reports = probe_drivers();
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].vendor == Vendor::kAmd);
  CHECK(reports[1].vendor == Vendor::kNvidia);
  for (const DriverReport& report : reports) {
    INFO(vendor_name(report.vendor) << " " << report.library);
    CHECK(report.library.empty() == report.version.empty());
    CHECK((report.usable() || !report.missing.empty() || !report.problems.empty()));
    for (const MissingPart& part : report.missing) CHECK_FALSE((part.what.empty() || part.package.empty()));
    for (const std::string& problem : report.problems) CHECK(problem.find('\n') == std::string::npos);
  }
}

TEST_CASE("libraries that load but are unusable give one clear line", "[.incomplete]") {
  const auto line_of = [](Vendor vendor) -> std::string {
    try {
      static_cast<void>(Driver::open(vendor));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kDevice);
      return error.line();
    }
    return "opened";
  };
  const std::string amd = line_of(Vendor::kAmd), nvidia = line_of(Vendor::kNvidia);
  INFO(amd << "\n" << nvidia);
  CHECK(amd.find("it lacks hipDriverGetVersion") != std::string::npos);
  CHECK(amd.find("more") != std::string::npos);
  CHECK(amd.find("libamdhip64") != std::string::npos);
  CHECK(nvidia.find("does not load") != std::string::npos);
  const std::vector<DriverReport> reports = probe_drivers();
  CHECK_FALSE(reports[0].usable());
  CHECK_FALSE(reports[1].problems.empty());
}

}  // namespace forge::driver::test
