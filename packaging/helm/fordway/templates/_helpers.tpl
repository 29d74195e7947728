{{- define "fordway.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "fordway.labels" -}}
app.kubernetes.io/name: fordway
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fordway.selector" -}}
app.kubernetes.io/name: fordway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The plugin's own keys, as JSON. */}}
{{- define "fordway.keys" -}}
{{- $keys := dict "pref64" .Values.pref64 }}
{{- with .Values.cni.clatPrefix }}{{ $_ := set $keys "clatPrefix" . }}{{ end }}
{{- with .Values.cni.nameservers }}{{ $_ := set $keys "nameservers" . }}{{ end }}
{{- if .Values.allowPrivate }}{{ $_ := set $keys "allowPrivate" true }}{{ end }}
{{- toJson $keys }}
{{- end }}
