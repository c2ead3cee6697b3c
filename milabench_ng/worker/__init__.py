"""The process inside the fence: runs one workload under the meter. Imports torch."""
