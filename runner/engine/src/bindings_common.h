// What the functions of the Python face have in common: programs come in, and errors go out.
#pragma once

#include <nanobind/nanobind.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "errors.h"
#include "workload/program.h"

namespace chakrascope::engine {

namespace nb = nanobind;

// Names come from files and need not be valid text.
inline nb::object to_text(const std::string& bytes) {
    const auto size = static_cast<Py_ssize_t>(bytes.size());
    return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), size, "replace"));
}

inline std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    if (!file || (file.peek() != EOF && !(bytes << file.rdbuf()))) {
        throw WorkloadFormatError(path + " cannot be read; check that the file exists and may be read.");
    }
    return std::move(bytes).str();
}

// Decode the programs; equal contents are decoded once.
inline std::vector<std::shared_ptr<const Program>> load_programs(const nb::list& sources) {
    std::vector<std::string> contents, names;
    for (std::size_t i = 0; i < sources.size(); ++i) {
        if (nb::isinstance<nb::bytes>(sources[i])) {
            const auto bytes = nb::cast<nb::bytes>(sources[i]);
            contents.emplace_back(bytes.c_str(), bytes.size());
            names.push_back("program " + std::to_string(i));
        } else {
            names.push_back(nb::cast<std::string>(nb::str(sources[i])));
            contents.push_back(read_file(names.back()));
        }
    }
    const nb::gil_scoped_release release;
    std::unordered_map<std::string_view, std::shared_ptr<const Program>> known;
    std::vector<std::shared_ptr<const Program>> programs;
    for (std::size_t i = 0; i < contents.size(); ++i) {
        auto& program = known[contents[i]];
        if (program == nullptr)
            program = std::make_shared<const Program>(decode_program(contents[i], names[i]));
        programs.push_back(program);
    }
    return programs;
}

// Raise the class of the same name of the package's error tree.
inline void raise_named(const nb::object& classes, const char* name, const std::exception& error) {
    PyErr_SetObject(nb::object(classes.attr(name)).ptr(), to_text(error.what()).ptr());
}

// Run a function of the engine, its exceptions raised as the package's.
template <class Function>
auto translated(const nb::object& errors, Function function) {
    try {
        return function();
    } catch (const ConfigError& error) {
        raise_named(errors, "ConfigError", error);
    } catch (const WorkloadFormatError& error) {
        raise_named(errors, "WorkloadFormatError", error);
    } catch (const DependencyError& error) {
        raise_named(errors, "DependencyError", error);
    } catch (const BackendError& error) {
        raise_named(errors, "BackendError", error);
    } catch (const Cancelled& error) {
        raise_named(errors, "Cancelled", error);
    }
    throw nb::python_error();
}

}  // namespace chakrascope::engine
