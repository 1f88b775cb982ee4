// SPDX-License-Identifier: GPL-2.0-only
// A driver that simulates a network with ns-3's TCP. The driver reads commands from standard input, and
// writes answers to standard output, one per line.
//
//   set NAME VALUE             one setting
//   nodes COUNT SWITCH...      all nodes; nodes that are not switches are hosts
//   link A B BITS_PER_S DELAY_PS LOSS MARK_BYTES
//   change AT_PS LINK BITS_PER_S  set the rate at AT_PS; links are numbered from 0; rate 0: down
//   build                      -> ready
//   send ID FROM TO BYTES AT_PS
//   run LIMIT_PS               -> for every completion: d ID TIME_PS; then: now TIME_PS [idle]
//   links                      -> for every direction: u FROM TO WIDTH_PS BYTES... (sent in each interval)
//                                 and l FROM TO BYTES BUSY QUEUED PACKETS DROPS MARKS QUEUE_BYTES;
//                                 r ID COUNT for every message with retransmitted segments;
//                                 f FROM TO PORT PORT SENT RECEIVED SENT_BYTES RECEIVED_BYTES LOST DELAY_NS
//                                 JITTER_NS from the flow monitor; then: end SEGMENTS EVENTS
//                                 RETRANSMISSIONS TIMEOUTS
//
// run stops after the first nanosecond with a completion, or at the limit (-1: none). An error is
// answered with "error TEXT" and ends the program. The end of the input also ends the program.
#include <ns3/simulator.h>
#include <sys/prctl.h>

#include <csignal>
#include <iostream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

#include "network.h"

namespace chakrascope::tcp {
namespace {

class Driver {
  public:
    // Execute a command line. Returns false if the program must end.
    bool obey(const std::string& line) {
        std::istringstream words(line);
        std::string command;
        words >> command;
        if (command == "send") return send(words);
        if (command == "run") return run(words);
        if (command == "set") return set(words);
        if (command == "nodes") return nodes(words);
        if (command == "link") return link(words);
        if (command == "change") return change(words);
        if (command == "build") return build();
        if (command == "links") return links();
        if (command == "quit") return false;
        if (command.empty()) return true;
        throw std::runtime_error("there is no command '" + command + "'");
    }

  private:
    bool send(std::istringstream& words) {
        std::uint64_t id = 0, bytes = 0;
        std::int32_t source = 0, destination = 0;
        std::int64_t time_ps = 0;
        read(words >> id >> source >> destination >> bytes >> time_ps, "send");
        network_.send(id, source, destination, bytes, time_ps);
        return true;
    }

    bool run(std::istringstream& words) {
        std::int64_t limit_ps = 0;
        read(words >> limit_ps, "run");
        std::string answer;
        for (const Completion& item : network_.run(limit_ps))
            answer += "d " + std::to_string(item.message) + ' ' + std::to_string(item.time_ps) + '\n';
        say(answer + "now " + std::to_string(network_.now_ps()) + (network_.idle() ? " idle\n" : "\n"));
        return true;
    }

    bool set(std::istringstream& words) {
        std::string name, value;
        words >> name >> std::ws;
        std::getline(words, value);
        network_.settings.set(name, value);
        return true;
    }

    bool nodes(std::istringstream& words) {
        std::int32_t count = 0;
        read(words >> count, "nodes");
        std::set<std::int32_t> switches;
        for (std::int32_t node = 0; words >> node;) switches.insert(node);
        network_.set_nodes(count, switches);
        return true;
    }

    bool link(std::istringstream& words) {
        std::int32_t a = 0, b = 0;
        std::uint64_t rate_bps = 0, mark_bytes = 0;
        std::int64_t delay_ps = 0;
        double loss = 0;
        read(words >> a >> b >> rate_bps >> delay_ps >> loss >> mark_bytes, "link");
        network_.add_link(a, b, rate_bps, delay_ps, loss, mark_bytes);
        return true;
    }

    bool change(std::istringstream& words) {
        std::int64_t time_ps = 0;
        std::size_t link = 0;
        std::uint64_t rate_bps = 0;
        read(words >> time_ps >> link >> rate_bps, "change");
        network_.add_change(time_ps, link, rate_bps);
        return true;
    }

    bool build() {
        network_.build();
        say("ready\n");
        return true;
    }

    bool links() {
        std::ostringstream answer;
        for (const LinkMeter* item : network_.links()) {
            answer << "l " << item->from << ' ' << item->to << ' ' << item->bytes << ' ' << item->busy_ps
                   << ' ' << item->queued_ps << ' ' << item->packets << ' ' << item->drops << ' '
                   << item->marks << ' ' << item->largest_queue_bytes << '\n';
            answer << "u " << item->from << ' ' << item->to << ' ' << item->history.width_ps;
            for (const std::uint64_t bytes : item->history.bytes) answer << ' ' << bytes;
            answer << '\n';
        }
        for (const auto& [message, count] : network_.retransmissions())
            answer << "r " << message << ' ' << count << '\n';
        for (const MonitoredFlow& flow : network_.monitored())
            answer << "f " << flow.from << ' ' << flow.to << ' ' << flow.from_port << ' ' << flow.to_port
                   << ' ' << flow.sent_packets << ' ' << flow.received_packets << ' ' << flow.sent_bytes
                   << ' ' << flow.received_bytes << ' ' << flow.lost_packets << ' ' << flow.delay_ns << ' '
                   << flow.jitter_ns << '\n';
        const SenderTotals& totals = network_.totals();
        answer << "end " << totals.segments << ' ' << ns3::Simulator::GetEventCount() << ' '
               << totals.retransmissions << ' ' << totals.timeouts << '\n';
        say(answer.str());
        return true;
    }

    static void read(const std::istream& words, const char* command) {
        if (!words) throw std::runtime_error(std::string("the command '") + command + "' is incomplete");
    }

    static void say(const std::string& text) {
        std::cout << text << std::flush;
        if (!std::cout) std::exit(1);  // the caller has closed the pipe
    }

    Network network_;
};

}  // namespace
}  // namespace chakrascope::tcp

int main() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::ios::sync_with_stdio(false);
    ns3::Time::SetResolution(ns3::Time::PS);
    try {
        chakrascope::tcp::Driver driver;
        for (std::string line; std::getline(std::cin, line) && driver.obey(line);) {
        }
        std::cout << std::flush;
        std::_Exit(0);  // exit without destroying the objects of ns-3
    } catch (const std::bad_alloc&) {
        std::cout << "error there is not enough memory for it" << std::endl;
    } catch (const std::exception& error) {
        std::cout << "error " << error.what() << std::endl;
    }
    std::_Exit(1);
}
